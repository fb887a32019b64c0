"""The results site: leaderboard, ledger, claims, a page per cell, and the survivor viewer."""

"""What a cell is and where its rows come from: identity, content hashes, source files, commit and machine."""

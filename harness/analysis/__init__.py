"""What a policy does inside a cache (diagnostics), what heads retrieve (head profiles), and how sure scores are."""

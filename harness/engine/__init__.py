"""The engine: a slot cache, an attention function, prompt processing in true blocks, decode, perplexity, a ledger.

`rows` is what goes in and comes out, `run.Engine` does it, `ledger.Ledger` says what was kept. Nothing is imported
here, so that what only names a regime or an error need not wait for transformers.
"""

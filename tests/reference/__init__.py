"""A second, slow implementation of every eviction policy, written from the equations alone.

Plain NumPy loops in float64, one file per method, one layer at a time. Nothing here is fast, nothing is shared
with the torch implementation, and nothing was copied from it: the two agree only if both follow policies.md.

Shape legend, used in every docstring: H KV heads, G query heads per KV head (Hq = H * G, consecutive heads
share a KV head), n slots, m rows of the current chunk, D head dimension, T prompt tokens, N budget in slots per
KV head.

`engine.simulate` runs one policy over the chunks of one layer; `presets.make` builds the named presets of
policies.md section 2.
"""

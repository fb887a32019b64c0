"""Head profiles for HeadKV (policies.md, 3.9): their files, and how a model's heads are measured.

``python -m harness.profile`` makes one; those of the testbed lie in this folder.
"""

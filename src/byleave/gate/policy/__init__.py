"""Rules of organisation, device, user and project, and the grants people give; pure.

`policy` parses the layers and applies them; `grants` says which calls a grant covers, by `broad.toml`; both match calls
with the patterns of `rules`.
"""

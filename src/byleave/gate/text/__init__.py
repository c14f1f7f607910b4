"""Text for people and for the record: hidden characters, masked secrets, calls in words.

`secrets` masks, by the formats of `secret_formats` and the names of `secret_names`; `render` describes calls and shows
changes; `characters` knows those that nobody sees.
"""

"""Authentication: keys, tokens and sign-ins of the page."""

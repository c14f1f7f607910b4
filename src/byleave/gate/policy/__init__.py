"""Rules: what owner, organisation, device and project say of a call, and the grants people give."""

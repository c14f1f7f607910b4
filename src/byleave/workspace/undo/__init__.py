"""What calls changed, kept so that it can be brought back."""

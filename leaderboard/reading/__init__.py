"""What pages read from the store, remembered as long as its file stays the same."""

"""What visitors choose by: widgets whose state is all in the URL, and what mounts elements in a page."""

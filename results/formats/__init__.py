"""Files that other tools read and write: predictions, TREC runs, exported stores."""

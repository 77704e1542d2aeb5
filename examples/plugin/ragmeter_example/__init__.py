"""An example of a package that adds a method, a dataset and a metric to ragmeter."""

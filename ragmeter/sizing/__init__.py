"""Which models a method has, and how large they are: told without their weights, and never guessed."""

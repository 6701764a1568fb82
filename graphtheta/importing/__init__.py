"""Tables and files of others become stores."""

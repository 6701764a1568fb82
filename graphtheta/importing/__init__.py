"""Import of tables and files of other programs into stores."""

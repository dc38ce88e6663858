"""What can be seen in the tables: readers, which write nothing but their own findings."""

"""`make gpu`: everything that only a GPU can show, in order, kept in one folder."""

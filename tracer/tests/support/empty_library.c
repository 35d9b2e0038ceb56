// A library that is loaded and unloaded over and over.
int of_an_empty_library(void) { return 1; }

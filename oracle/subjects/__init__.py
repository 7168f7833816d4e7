"""The things under test, each a writer or a reader, and how a spec names one."""

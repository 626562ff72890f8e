//! Both processes over a tree of files, and with real servers where there are any.

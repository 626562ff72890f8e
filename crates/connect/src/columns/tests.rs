//! Files of columns through the public entry points, both ways.

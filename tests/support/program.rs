//! The program itself as a process, for what only SIGKILL shows.

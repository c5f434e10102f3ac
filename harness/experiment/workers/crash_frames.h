#pragma once
// Frames of a process that crashes.

namespace kvarena::experiment {

/// From now on a signal of a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes the innermost frames of its thread
/// to standard error, a line "FILE+0xOFFSET NAME" each, before it ends the process as it would have. Leaves alone a
/// signal that is handled already, as sanitizers do. For the thread that calls it, a stack that is used up is told too.
void print_frames_of_crashes();

}  // namespace kvarena::experiment

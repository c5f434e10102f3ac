#pragma once
// A libnccl.so.2 for ranks that are threads of one program, over emulated devices. It is linked like any library; what
// asks the loader for NCCL gets it.

struct CUstream_st;

extern "C" {
/// Sets the function that waits for a stream, which the library cannot know by itself. Called before anything else.
void emulated_nccl_wait_by(void (*synchronize)(CUstream_st* stream));
/// Numbers that were sent so far.
long emulated_nccl_numbers();
}

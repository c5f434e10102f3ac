#include "harness/cli/program.h"

int main(int argc, char** argv) { return kvarena::cli::run_program({argv + 1, argv + argc}); }

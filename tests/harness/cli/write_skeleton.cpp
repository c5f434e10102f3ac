// write_skeleton FAMILY NAME FILE: the text of `kvarena new-method`, for the build of skeleton_test.

#include <cstdlib>
#include <fstream>

#include "harness/cli/skeletons.h"

int main(int argc, char** argv) {
  if (argc != 4) return EXIT_FAILURE;
  for (const kvarena::cli::Skeleton& skeleton : kvarena::cli::skeletons()) {
    if (skeleton.family != argv[1]) continue;
    std::ofstream file(argv[3]);
    file << kvarena::cli::fill_skeleton(skeleton, argv[2]);
    return file.flush() ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  return EXIT_FAILURE;
}

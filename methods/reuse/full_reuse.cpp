#include "harness/method/reuser.h"

namespace kvarena {
namespace {

/// Full reuse: entries of chunks that were computed alone are put one behind another, their keys rotated to their new
/// positions, and the question alone is computed. No token of a chunk has seen another chunk. Gim et al. 2024 (Prompt
/// Cache), arXiv:2311.04934, whose schemas fix positions beforehand; the free order is that of the methods that improve
/// on it.
class FullReuse final : public Reuser {};

KVARENA_REUSER(FullReuse, {.name = "full_reuse",
                           .title = "Full reuse",
                           .summary = "Concatenates the entries of chunks computed alone and computes the question.",
                           .paper = "arXiv:2311.04934"});

}  // namespace
}  // namespace kvarena

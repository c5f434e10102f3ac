#include "metrics/score_files.h"
#include "tests/fuzz/fuzz.h"

/// A file of predictions of another program.
KVARENA_FUZZ(score_file, data) {
  const kvarena::fuzz::BytesFile file(data);
  for (const char* metric : {"longbench", "classification", "infinitebench", "completion_rate", "exact_call_accuracy",
                             "gsm8k_long", "needle", "length_score"}) {
    kvarena::fuzz::try_to([&] {
      (void)kvarena::metrics::score_file(file.path(), kvarena::metrics::find_metric(metric),
                                         {.resampling = {.resamples = 10}});
    });
  }
}

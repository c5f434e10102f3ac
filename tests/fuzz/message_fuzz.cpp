#include <nlohmann/json.hpp>

#include "harness/experiment/workers/message.h"
#include "harness/experiment/workers/wire.h"
#include "tests/fuzz/fuzz.h"

/// Feeds the runner arbitrary bytes in place of a worker's messages.
KVARENA_FUZZ(message, data) {
  using namespace kvarena::experiment;
  FrameReader reader;
  reader.append(kvarena::fuzz::text_of(data.first(data.size() / 2)));
  reader.append(kvarena::fuzz::text_of(data.subspan(data.size() / 2)));
  while (const auto message = reader.next()) {
    if (!message->is_object() || !message->contains("ok")) continue;
    for (const auto& outcome : message->at("ok")) {
      try {
        (void)read_outcome(outcome);
      } catch (const nlohmann::json::exception&) {  // as its header says
      } catch (const kvarena::UserError&) {
      }
    }
  }
}

#include "harness/engine/session/request_meter.h"

#include <algorithm>

namespace kvarena {

void note_bytes(Session& session, const KvCache& cache, int64_t beside) {
  const MemoryLedger& ledger = *cache.ledger;
  if (session.tier_bytes.empty()) session.state_bytes = cache.state_bytes();
  session.tier_bytes.push_back({.device = ledger.current(Tier::device) + beside,
                                .host = ledger.current(Tier::host),
                                .disk = ledger.current(Tier::disk)});
}

void note_traffic(Session& session, Traffic& before) {
  const Traffic& now = session.activity.traffic;
  const Traffic pass{.loaded_bytes = now.loaded_bytes - before.loaded_bytes,
                     .offloaded_bytes = now.offloaded_bytes - before.offloaded_bytes,
                     .link_seconds = now.link_seconds - before.link_seconds,
                     .stalled_seconds = now.stalled_seconds - before.stalled_seconds};
  if (pass.loaded_bytes > 0 || pass.offloaded_bytes > 0) session.traffic.push_back(pass);
  before = now;
}

void note_pass(Session& session, const KvCache& cache, Traffic& before) {
  note_bytes(session, cache);
  session.peak_bytes = cache.ledger->peak(Tier::device);
  session.peak_host_bytes = cache.ledger->peak(Tier::host);
  session.peak_disk_bytes = cache.ledger->peak(Tier::disk);
  note_traffic(session, before);
  // Entries that the first step brought to the device lie there as those that stay do.
  const bool first = session.tier_bytes.size() == 2;
  if (first && session.activity.traffic.loaded_bytes > 0) {
    session.resident_bytes = std::max(session.resident_bytes, cache.bytes());
  }
}

}  // namespace kvarena

#include "harness/device/ranks/connect_devices.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "harness/device/ranks/host_exchange.h"
#include "harness/device/ranks/nccl_exchange.h"
#include "harness/model/ranks/parts.h"

namespace kvarena::device {
namespace {

/// A rank's description of its device.
struct Card {
  char place[128] = {};   // host, and where it sits there
  char reason[128] = {};  // why there is no NCCL; empty: there is
};

/// The driver's answer.
struct Verdict {
  int64_t nccl = 0;
  NcclId id;
};

template <size_t N>
void write(char (&to)[N], const std::string& text) {
  std::ranges::copy(text.substr(0, N - 1), to);
}

Card card_of(bool nccl, const std::string& reason) {
  char host[64] = {};
  ::gethostname(host, sizeof host - 1);
  Card card;
  write(card.place, fmt::format("{} {}", host, kernels::cuda_device_place()));
  if (!nccl) write(card.reason, reason);
  return card;
}

/// Why NCCL cannot carry rows between devices of these cards; empty when it can.
std::string obstacle(const std::vector<Card>& cards) {
  std::map<std::string, size_t> devices;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    if (cards[rank].reason[0] != '\0') return fmt::format("rank {} has no NCCL: {}", rank, cards[rank].reason);
    const auto [at, fresh] = devices.emplace(cards[rank].place, rank);
    if (!fresh) return fmt::format("ranks {} and {} share the device {}", at->second, rank, cards[rank].place);
  }
  return "";
}

}  // namespace

Transport connect_devices(RankChannel& channel, std::shared_ptr<const NcclLibrary> nccl, const std::string& reason) {
  const Share share = channel.share();
  const Card own = card_of(nccl != nullptr, reason);
  Transport met;
  Verdict verdict;
  if (share.rank == 0) {
    std::vector<Card> cards{own};
    for (int64_t rank = 1; rank < share.ranks; ++rank) cards.push_back(receive_record<Card>(channel, rank));
    met.fallback_reason = obstacle(cards);
    if (met.fallback_reason.empty() && nccl->get_unique_id(&verdict.id) != NcclLibrary::kSuccess) {
      met.fallback_reason = "NCCL finds no way between machines";
    }
    verdict.nccl = met.fallback_reason.empty() ? 1 : 0;
    for (int64_t rank = 1; rank < share.ranks; ++rank) send_record(channel, rank, verdict);
  } else {
    send_record(channel, 0, own);
    verdict = receive_record<Verdict>(channel, 0);
  }
  if (verdict.nccl == 0) {
    met.exchange = std::make_unique<HostExchange>(channel);
  } else {
    met.exchange = std::make_unique<NcclExchange>(std::move(nccl), verdict.id, channel);
  }
  return met;
}

}  // namespace kvarena::device

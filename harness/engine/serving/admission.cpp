#include "harness/engine/serving/admission.h"

#include <algorithm>

namespace kvarena::serving {

bool Admission::fits(const Promise& promise) const {
  const int64_t in_turn = std::max(promise.in_turn, in_turn_.empty() ? 0 : *in_turn_.rbegin());
  return promise.own <= room_ - promised_ - in_turn;
}

Admission::Place Admission::admit(const Promise& promise) {
  promised_ += promise.own;
  peak_ = std::max(peak_, promised_);
  in_turn_.insert(promise.in_turn);
  return {new Promise(promise), GiveBack{this}};
}

void Admission::GiveBack::operator()(const Promise* promise) const {
  to->promised_ -= promise->own;
  to->in_turn_.erase(to->in_turn_.find(promise->in_turn));
  delete promise;
}

}  // namespace kvarena::serving

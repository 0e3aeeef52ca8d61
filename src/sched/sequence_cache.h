// What sequences hold of the cache: pages, leases on shared prefixes, snapshots at the places where others may go on.
#pragma once

#include "engine/step_model.h"
#include "kv/page_pool.h"
#include "kv/prefix_cache.h"
#include "sched/sequence.h"

namespace nibble::sched {

// The scheduler thread's own. Prefixes that nobody uses give way whenever pages are needed.
class SequenceCache {
 public:
  // Borrows the model. snapshot_bytes and host_bytes: see PrefixCache; snapshot_bytes 0: no prefix cache.
  SequenceCache(engine::StepModel& model, std::int64_t snapshot_bytes, std::int64_t host_bytes);

  // Gives s, which has a slot and no pages, pages for its first `reserve` tokens, and resumes it from the deepest snapshot that
  // it begins with. False when that would leave fewer than `leave` pages free: nothing has changed then.
  bool start(Sequence& s, int reserve, int leave);
  // Makes sure of pages for the first `tokens` tokens. False: there are not enough, and nothing has changed.
  bool grow(Sequence& s, int tokens);
  // Puts the state after `position` tokens aside, for whoever begins with the same ones. position may lie a few tokens
  // behind device_len (StepModel::save).
  void keep(Sequence& s, int position);
  // Takes everything back; the sequence holds nothing and starts over when it is given a slot again.
  void release(Sequence& s);

  void reset() { prefixes_.clear(); }
  const kv::PagePool& pages() const { return pool_; }
  const kv::PrefixCache& prefixes() const { return prefixes_; }
  static int pages_for(int tokens);

 private:
  bool make_room(int pages);
  void plan_snapshots(Sequence& s, int shared);

  engine::StepModel& model_;
  bool sharing_;
  kv::PagePool pool_;
  kv::PrefixCache prefixes_;
};

}  // namespace nibble::sched

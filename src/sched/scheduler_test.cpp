// The scheduler's thread, over a model whose device is lost.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <semaphore>
#include <string>

#include "sched/testing/witness_model.h"

namespace nibble::sched {
namespace {

Request request(RequestId id) {
  Request r;
  r.id = id;
  r.prompt.assign(40, static_cast<TokenId>(2 + id));
  r.sampling.max_tokens = 1000;
  r.sampling.temperature = 0.0f;
  r.sampling.ignore_eos = true;
  return r;
}

TEST(Scheduler, ALostDeviceEndsEveryRequestAndTakesNoMore) {
  for (const int call : {1, 2, 7, 40}) {
    SCOPED_TRACE("call " + std::to_string(call));
    testing::WitnessSpec spec;
    spec.slots = 2;
    auto model = std::make_unique<testing::WitnessModel>(spec);
    model->fail_for_good = true;
    model->fail_after = call;
    Scheduler scheduler(std::move(model), EngineOptions{});
    std::counting_semaphore<> told(0);
    scheduler.on_events([&] { told.release(); });
    EXPECT_EQ(scheduler.failure(), "");
    std::map<RequestId, int> ends;
    for (RequestId id = 1; id <= 5; ++id)
      if (scheduler.submit(request(id))) ends[id] = 0;
    while (scheduler.failure().empty()) ASSERT_TRUE(told.try_acquire_for(std::chrono::seconds(60)));
    EXPECT_NE(scheduler.failure().find("lost the device"), std::string::npos);
    // All events are there by now.
    for (const Event& event : scheduler.take_events()) {
      if (!event.finished) continue;
      ++ends[event.request];
      EXPECT_EQ(*event.finished, FinishReason::kError);
      EXPECT_EQ(event.error.message, scheduler.failure());
    }
    EXPECT_GE(ends.size(), 1u);
    for (const auto& [id, count] : ends) EXPECT_EQ(count, 1) << "request " << id;
    const auto refused = scheduler.submit(request(9));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status().code, StatusCode::kUnavailable);
    EXPECT_EQ(scheduler.stats().running + scheduler.stats().waiting, 0);
  }
}

}  // namespace
}  // namespace nibble::sched

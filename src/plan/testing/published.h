// The well-known models for tests, each made once a process: 70,000 to 150,000 tensors.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plan/schedule.h"
#include "plan/weight_groups.h"

namespace nibble::plan::testing {

inline const ModelFacts& published(const std::string& name) {
  static std::map<std::string, ModelFacts> made;
  const auto found = made.find(name);
  if (found != made.end()) return found->second;
  auto facts = published_model(name);
  EXPECT_TRUE(facts) << name;
  return made.emplace(name, facts ? std::move(*facts) : ModelFacts{}).first->second;
}

inline const WeightGroups& published_groups(const std::string& name) {
  static std::map<std::string, WeightGroups> made;
  const auto found = made.find(name);
  if (found != made.end()) return found->second;
  return made.emplace(name, group_weights(published(name))).first->second;
}

}  // namespace nibble::plan::testing

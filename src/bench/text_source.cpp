#include "bench/text_source.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <iterator>
#include <string_view>

#include "nibble/status.h"
#include "text/utf8.h"

namespace nibble::bench {
namespace {

constexpr std::size_t kLeastFileBytes = 1000;
constexpr std::size_t kQuestionBytes = 120;  // of a file's text

constexpr std::array<std::string_view, 16> kNames = {
    "Anna", "Ben",  "Clara", "David", "Emma", "Felix", "Grace", "Henry",
    "Ida",  "Jack", "Kate",  "Leo",   "Mia",  "Nora",  "Oscar", "Paula"};
constexpr std::array<std::string_view, 12> kCities = {"Berlin", "Paris",  "Rome",   "Madrid",
                                                      "Vienna", "Oslo",   "Lisbon", "Athens",
                                                      "Dublin", "Prague", "Warsaw", "Cairo"};
constexpr std::array<std::string_view, 12> kJobs = {"teacher", "doctor", "baker",  "farmer",
                                                    "driver",  "nurse",  "cook",   "painter",
                                                    "writer",  "singer", "tailor", "pilot"};
constexpr std::array<std::string_view, 16> kThings = {
    "apple", "book",   "chair", "door",   "egg",    "flower", "garden", "hat",
    "key",   "letter", "map",   "orange", "pencil", "river",  "stone",  "table"};
constexpr std::array<std::string_view, 8> kColors = {"red",   "blue",  "green", "yellow",
                                                     "black", "white", "brown", "grey"};
constexpr std::array<std::string_view, 7> kDays = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                                   "Friday", "Saturday", "Sunday"};

template <std::size_t N>
std::string_view pick(Random& random, const std::array<std::string_view, N>& words) {
  return words[random.below(N)];
}

std::string list_of_things(Random& random) {
  std::string list;
  for (int i = random.between(3, 5); i > 0; --i) {
    list += pick(random, kThings);
    if (i > 1) list += ", ";
  }
  return list;
}

std::string made_up_sentence(Random& random) {
  switch (random.below(6)) {
    case 0:
      return fmt::format("{} is {} years old and lives in {}.", pick(random, kNames),
                         random.between(5, 90), pick(random, kCities));
    case 1:
      return fmt::format("{} works as a {} in {}.", pick(random, kNames), pick(random, kJobs),
                         pick(random, kCities));
    case 2:
      return fmt::format("The {} {} costs {} dollars.", pick(random, kColors),
                         pick(random, kThings), random.between(1, 99));
    case 3:
      return fmt::format("On {} {} went to {} with a {}.", pick(random, kDays),
                         pick(random, kNames), pick(random, kCities), pick(random, kThings));
    case 4:
      return fmt::format("{} bought these things: {}.", pick(random, kNames),
                         list_of_things(random));
    default: {
      const int a = random.between(0, 99), b = random.between(0, 99);
      return fmt::format("{} + {} = {}.", a, b, a + b);
    }
  }
}

std::string made_up_question(Random& random) {
  switch (random.below(5)) {
    case 0:
      return fmt::format("What is {} plus {}?", random.between(0, 99), random.between(0, 99));
    case 1:
      return fmt::format("Sort these words: {}", list_of_things(random));
    case 2:
      return fmt::format("Reverse this list: {}", list_of_things(random));
    case 3:
      return fmt::format("{} is a {} from {}. Write that as JSON.", pick(random, kNames),
                         pick(random, kJobs), pick(random, kCities));
    default:
      return fmt::format("How many items are in this list: {}", list_of_things(random));
  }
}

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u;
}

}  // namespace

TextSource TextSource::generated() {
  TextSource source;
  source.description_ = "sentences made up from the seed";
  return source;
}

TextSource TextSource::from_file(const std::filesystem::path& path) {
  const auto fail = [&](const std::string& what) {
    throw Error(ExitCode::kUsage, fmt::format("--text {}: {}", path.string(), what));
  };
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) fail("cannot be read");
  TextSource source;
  source.text_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (const auto at = text::first_invalid_utf8(source.text_))
    fail(fmt::format("not UTF-8: byte {}", *at));
  if (source.text_.size() < kLeastFileBytes)
    fail(fmt::format("{} bytes are too few, at least {} are needed", source.text_.size(),
                     kLeastFileBytes));
  source.description_ =
      fmt::format("slices of {} ({} bytes)", path.filename().string(), source.text_.size());
  return source;
}

std::string TextSource::passage(Random& random, std::size_t bytes) const {
  std::string out;
  if (text_.empty()) {
    while (out.size() < bytes) {
      if (!out.empty()) out += ' ';
      out += made_up_sentence(random);
    }
    return out;
  }
  // From a word's beginning, so that the slices are text that somebody could have sent.
  std::size_t at = text_.find(' ', random.below(text_.size()));
  at = at == std::string::npos ? 0 : at + 1;
  while (out.size() < bytes) {
    std::size_t count = std::min(bytes - out.size(), text_.size() - at);
    while (at + count < text_.size() && continues_character(text_[at + count])) ++count;
    out.append(text_, at, count);
    at = 0;
  }
  return out;
}

std::string TextSource::question(Random& random) const {
  if (text_.empty()) return made_up_question(random);
  return "Go on from here: " + passage(random, kQuestionBytes);
}

}  // namespace nibble::bench

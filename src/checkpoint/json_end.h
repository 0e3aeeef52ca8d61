// What simdjson's On-Demand interface lacks in 3.0 and has under another name later.
#pragma once

#include <simdjson.h>

namespace nibble::checkpoint {

// True when something follows the document's value. Call after the root object has been walked to
// its end.
inline bool has_more(simdjson::ondemand::document& document) {
  const char* place = nullptr;
  return document.current_location().get(place) != simdjson::OUT_OF_BOUNDS;
}

}  // namespace nibble::checkpoint

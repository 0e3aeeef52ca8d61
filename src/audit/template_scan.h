// Does a chat template reach for Python's insides? A chat template formats messages: it has no use for attributes that begin with
// an underscore, for other templates, or for strings that spell such names in pieces. nibble renders no template of a checkpoint;
// the scan is for whatever else may.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "audit/codes.h"

namespace nibble::audit {

// Templates of well-known models have up to 20 KB.
inline constexpr std::size_t kMaxTemplateBytes = 2 << 20;

struct TemplateHit {
  Code code;        // kTemplateAttributeWalk or kTemplateImport
  int line;         // of the template, from 1
  std::string why;  // printable ASCII
};

struct TemplateScan {
  std::vector<TemplateHit> hits;  // at most kMaxTemplateHits, the first of each kind of reason
  std::string problem;            // why Jinja would refuse the template, or empty
};

inline constexpr std::size_t kMaxTemplateHits = 8;

// `text` has at most kMaxTemplateBytes (checked invariant); any bytes. What is found:
//   attributes, names and keyword arguments that begin with an underscore, and Python's other ways inside (f_globals, mro, ...)
//   the attr filter, by name or through map()
//   lipsum, cycler, joiner, request and self where something is taken from them
//   calls of eval, exec, getattr, popen, system, ...
//   strings that hold such a name: whole, in pieces, reversed, in capitals, or spelled with escapes
//   import, include, extends and from
// Ordinary templates are full of underscores (tool_calls, '_'): those are not enough.
TemplateScan scan_template(std::string_view text);

}  // namespace nibble::audit

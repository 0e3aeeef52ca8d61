// One DSML tag of generated text, between its mark and its '>'.
#pragma once

#include <string>
#include <string_view>

namespace nibble::text {

struct DsmlTag {
  enum class Kind { kToolCalls, kInvoke, kParameter, kOther };
  Kind kind = Kind::kOther;  // kOther: not one of these words, or attributes missing
  bool closes = false;       // </...
  std::string name;          // invoke, parameter: the name attribute
  bool is_string = false;    // parameter: string="true"
};

// `text` is what stands after the mark, without '>': `invoke name="f"`. More or less space is
// tolerated.
DsmlTag parse_dsml_tag(std::string_view text, bool closes);

// Whether `text`, cut off by the end of the output, may be the start of a tag that belongs to the
// grammar.
bool may_become_dsml_tag(std::string_view text);

}  // namespace nibble::text

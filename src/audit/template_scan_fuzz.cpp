// Any bytes as a chat template: the scan ends, its report is bounded and printable, and a walk that follows is always seen.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "audit/template_lexer.h"
#include "audit/template_scan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::audit;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const TemplateScan scan = scan_template(text);
  if (scan.hits.size() > kMaxTemplateHits) std::abort();
  for (const TemplateHit& hit : scan.hits) {
    if (hit.line < 1 || hit.line > 1 + std::count(text.begin(), text.end(), '\n')) std::abort();
    if (!std::all_of(hit.why.begin(), hit.why.end(), [](char c) { return c >= ' ' && c <= '~'; }))
      std::abort();
  }
  // A template that lexes ends outside of tags: whatever is put after it stands as it would alone.
  if (scan.problem.empty() && scan.hits.size() < kMaxTemplateHits && !text.ends_with('{')) {
    const TemplateScan more = scan_template(text + "{{ x.__class__ }}");
    if (std::none_of(more.hits.begin(), more.hits.end(),
                     [](const TemplateHit& hit) { return hit.why == "attribute '__class__'"; }))
      std::abort();
  }
  return 0;
}

#include <cstddef>
#include <cstdint>

#include "checkpoint/quant_claims.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble;  // NOLINT(google-build-using-namespace)
  checkpoint::QuantClaims claims;
  checkpoint::add_quant_claims({reinterpret_cast<const char*>(data), size}, "config.json", claims);
  std::vector<checkpoint::FoundFormat> found;
  for (const quant::Format format : quant::kFormats)
    found.push_back(
        {checkpoint::WeightClass::kRoutedExperts, format, quant::traits(format).scale_dtype, 1});
  checkpoint::contradictions(claims, found);
  return 0;
}

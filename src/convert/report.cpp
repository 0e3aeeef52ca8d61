#include "convert/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace nibble::convert {

void sum_up(ConvertReport& report) {
  for (const MatrixReport& matrix : report.matrices) {
    report.total.add(matrix.error);
    auto row = std::ranges::find_if(report.kinds, [&](const KindReport& k) {
      return k.kind == matrix.kind && k.from == matrix.from && k.to == matrix.to;
    });
    if (row == report.kinds.end())
      row = report.kinds.insert(row, {matrix.kind, matrix.from, matrix.to, 0, 0, {}, {}});
    ++row->matrices;
    if (!matrix.error.exact()) ++row->inexact_matrices;
    if (matrix.error.worst > row->error.worst) row->worst_matrix = matrix.name;
    row->error.add(matrix.error);
  }
}

std::string ConvertReport::verdict() const {
  if (matrices.empty()) return "exact: there was nothing to convert";
  if (exact())
    return fmt::format("exact: all {} values of {} matrices are the source's", total.values,
                       matrices.size());
  std::int64_t inexact = 0;
  for (const KindReport& kind : kinds) inexact += kind.inexact_matrices;
  return fmt::format("{} of {} blocks inexact, in {} of {} matrices; relative RMS error {:.4g}",
                     total.inexact_blocks, total.blocks, inexact, matrices.size(),
                     total.relative_rms());
}

}  // namespace nibble::convert

// The `process_*` series, which prometheus-cpp does not have.

#ifndef SERVER_METRICS_PROCESS_METRICS_H_
#define SERVER_METRICS_PROCESS_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

namespace megatrain {

// Reads /proc/self at each scrape. Thread-safe.
class ProcessMetrics final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace megatrain

#endif  // SERVER_METRICS_PROCESS_METRICS_H_

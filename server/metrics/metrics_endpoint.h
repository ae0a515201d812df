// The HTTP end that Prometheus scrapes.

#ifndef SERVER_METRICS_METRICS_ENDPOINT_H_
#define SERVER_METRICS_METRICS_ENDPOINT_H_

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain {

class MetricsEndpoint {
 public:
  // Serves /metrics of `collectables` on `address`, such as "127.0.0.1:9464"; port 0: any free
  // one. UNAVAILABLE when the port is taken.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const std::string& address,
      std::vector<std::shared_ptr<prometheus::Collectable>> collectables);

  // With the port that was bound.
  const std::string& address() const { return address_; }

 private:
  MetricsEndpoint() = default;

  // The exposer holds them weakly.
  std::vector<std::shared_ptr<prometheus::Collectable>> collectables_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  std::string address_;
};

}  // namespace megatrain

#endif  // SERVER_METRICS_METRICS_ENDPOINT_H_

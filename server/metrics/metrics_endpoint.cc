#include "server/metrics/metrics_endpoint.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const std::string& address,
    std::vector<std::shared_ptr<prometheus::Collectable>> collectables) {
  std::unique_ptr<MetricsEndpoint> endpoint(new MetricsEndpoint());
  endpoint->collectables_ = std::move(collectables);
  try {
    endpoint->exposer_ = std::make_unique<prometheus::Exposer>(address, /*num_threads=*/2);
    for (const auto& collectable : endpoint->collectables_) {
      endpoint->exposer_->RegisterCollectable(collectable);
    }
    const std::vector<int> ports = endpoint->exposer_->GetListeningPorts();
    endpoint->address_ =
        absl::StrCat(address.substr(0, address.rfind(':')), ":", ports.empty() ? 0 : ports[0]);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("metrics: cannot listen on ", address, " (", error.what(),
                     "): is the port in use? Set --metrics-listen to another one"));
  }
  return endpoint;
}

}  // namespace megatrain

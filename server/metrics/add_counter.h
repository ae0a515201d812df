#ifndef SERVER_METRICS_ADD_COUNTER_H_
#define SERVER_METRICS_ADD_COUNTER_H_

#include <prometheus/counter.h>
#include <prometheus/labels.h>
#include <prometheus/registry.h>

#include <string>

namespace megatrain {

// The one counter of a family that has no other. Lives as long as the registry.
inline prometheus::Counter* AddCounter(prometheus::Registry& registry, const std::string& name,
                                       const std::string& help,
                                       const prometheus::Labels& labels = {}) {
  return &prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

}  // namespace megatrain

#endif  // SERVER_METRICS_ADD_COUNTER_H_

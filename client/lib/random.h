// The client's randomness: from the operating system, through OpenSSL.

#ifndef CLIENT_LIB_RANDOM_H_
#define CLIENT_LIB_RANDOM_H_

#include <string>
#include <string_view>

namespace megatrain {

// A random UUID (RFC 9562, version 4).
std::string NewRequestId();

// The UUID (version 8) that belongs to `content`: equal content, equal UUID. So a repeat of a
// request from another process is known as the same request.
std::string RequestIdFor(std::string_view content);

// Uniform in [0, 1).
double RandomFraction();

}  // namespace megatrain

#endif  // CLIENT_LIB_RANDOM_H_

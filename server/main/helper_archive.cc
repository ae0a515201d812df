#include "server/main/helper_archive.h"

namespace megatrain {
namespace {

const unsigned char kBytes[] = {
#include "server/main/helper_archive.inc"
};

}  // namespace

std::string_view HelperArchive() { return {reinterpret_cast<const char*>(kBytes), sizeof(kBytes)}; }

}  // namespace megatrain

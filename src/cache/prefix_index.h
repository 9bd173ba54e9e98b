#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bl {

// Which text the keys and values of a page belong to.
//
// A tree: a node is a page, named by the salt it stands under and by all tokens from the beginning
// of the text to its own last one. What lies under one salt may be shared; the salt holds whatever
// else keys and values depend on (adapters, the rotary tables that a length chooses). Full pages
// are found by a hash chain, hash = mix(hash of the parent, ids), and then compared token by token
// with a parent that is known to be right: two texts with one hash are two nodes. The last page of
// a text may be partly filled; it has no children.
//
// A page is in the cache's own memory or, after its eviction, in a slot of host memory; a page in
// the cache's own memory never stands behind one on the host.
//
// Knows nothing of pools and memory: PrefixCache does. Where an addition throws bad_alloc nothing
// has changed; nothing else throws.
class PrefixIndex {
 public:
  using Node = std::int32_t;
  static constexpr Node kNone = -1;

  // What a text of this salt starts from, made when it is first needed.
  Node root(std::string_view salt);
  Node find_root(std::string_view salt) const;

  // The child of `parent` that holds exactly these kPageSlots tokens.
  Node find_full(Node parent, std::span<const std::int32_t> ids) const;
  // The child that begins with the most of `ids`, and with how many.
  struct Longest {
    Node node = kNone;
    std::int64_t tokens = 0;
  };
  Longest find_longest(Node parent, std::span<const std::int32_t> ids) const;

  // A new child, 1 … kPageSlots tokens; no child may hold the same ones. Its page is in no other
  // node.
  Node insert(Node parent, std::span<const std::int32_t> ids, std::int32_t page);
  // A node without children goes; its salt too when it was the last of it.
  void erase(Node node);

  std::int32_t page(Node node) const { return at(node).page; }  // −1: on the host
  std::int32_t host_slot(Node node) const { return at(node).host_slot; }
  bool on_host(Node node) const { return at(node).host_slot >= 0; }
  Node parent(Node node) const { return at(node).parent; }  // a root for the first page of a text
  bool is_root(Node node) const { return at(node).parent == kNone; }
  std::span<const Node> children(Node node) const { return at(node).children; }
  bool has_children(Node node) const { return !at(node).children.empty(); }
  // Children in the cache's own memory.
  bool has_near_children(Node node) const { return at(node).near_children > 0; }
  std::span<const std::int32_t> ids(Node node) const { return at(node).ids; }
  std::int64_t size() const { return static_cast<std::int64_t>(of_page_.size()); }  // pages
  std::int64_t host_size() const { return static_cast<std::int64_t>(host_ages_.size()); }
  // Changes with every page that comes, goes or moves.
  std::uint64_t changes() const { return changes_; }
  // A number that no other node has had or will have; 0 where the node is none.
  std::uint64_t number(Node node) const { return at(node).number; }
  // The node of a page; kNone where it is in none.
  Node node_of(std::int32_t page) const;
  // The child just before `node` in the order of tokens: what its beginning alone would be.
  Node neighbour_before(Node node) const;

  // A page leaves the cache's own memory, behind which none is left, or comes back.
  void move_to_host(Node node, std::int32_t host_slot);
  void move_to_page(Node node, std::int32_t page);

  // The order of use. All nodes of a text are touched together, the last page first, so that a page
  // never looks older than those that need it.
  void touch_text(Node last);
  void touch(Node node);
  const std::list<Node>& by_age() const { return ages_; }  // least recently used first
  const std::list<Node>& host_by_age() const { return host_ages_; }

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint64_t number = 0;
    Node parent = kNone;
    std::int32_t page = -1;
    std::int32_t host_slot = -1;
    std::int32_t near_children = 0;
    std::vector<std::int32_t> ids;  // the page's own
    std::vector<Node> children;     // in the order of their ids
    std::string salt;               // of a root
    std::list<Node>::iterator age;
  };
  const Entry& at(Node node) const { return nodes_[static_cast<std::size_t>(node)]; }
  Entry& at(Node node) { return nodes_[static_cast<std::size_t>(node)]; }
  Node make_node();
  void free_node(Node node);
  void unlink(Node node);
  void drop_empty_root(Node node);
  std::size_t place_among(const Entry& parent, std::span<const std::int32_t> ids) const;

  std::vector<Entry> nodes_;
  std::vector<Node> unused_;
  std::map<std::string, Node, std::less<>> roots_;
  std::unordered_multimap<std::uint64_t, Node> full_;
  std::unordered_map<std::int32_t, Node> of_page_;
  std::list<Node> ages_;
  std::list<Node> host_ages_;
  std::uint64_t changes_ = 0;
};

}  // namespace bl

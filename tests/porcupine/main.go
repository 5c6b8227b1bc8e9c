// Reads histories from its input, an operation a line (tests/src/history/text.rs), an empty line behind each, and prints of
// each whether it is linearizable, by porcupine. The model is written for itself: unlike the one beside which it is held, it
// knows a set of states that the key may be in, and takes an operation without an answer for both done and not done.
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type kind int

const (
	nothing kind = iota
	present
	anything
)

// A state that a key may be in. The version is exact or, after writes without an answer, the least one.
type state struct {
	kind    kind
	value   int64
	version uint64
	exact   bool
}

type input struct {
	key    uint64
	action string
	value  int64
	// always, absent, present, or a version
	condition string
}

type output struct {
	outcome string
	version uint64
	value   int64
}

// What is left of a state when the object is known to have this version; 0 is no object.
func observe(s state, version uint64) []state {
	if version == 0 {
		if s.kind == present {
			return nil
		}
		s.kind, s.value = nothing, 0
		return []state{s}
	}
	if s.kind == nothing || version < s.version || (s.exact && version != s.version) {
		return nil
	}
	s.version, s.exact = version, true
	return []state{s}
}

// The states in which the condition holds, and those in which it may fail, without looking at any answer.
func split(s state, condition string) (holds, fails []state) {
	absent := state{nothing, 0, s.version, false}
	switch condition {
	case "always":
		return []state{s}, nil
	case "absent":
		if s.kind != present {
			holds = append(holds, absent)
		}
		if s.kind != nothing {
			fails = append(fails, s)
		}
	case "present":
		fails, holds = split(s, "absent")
	default:
		version, err := strconv.ParseUint(condition, 10, 64)
		if err != nil {
			panic(err)
		}
		holds = observe(s, version)
		if !(s.kind == present && s.exact && s.version == version) {
			fails = append(fails, s)
		}
	}
	return holds, fails
}

func write(s state, kind kind, value int64, version uint64) []state {
	if version == 0 {
		return []state{{kind, value, s.version + 1, false}}
	}
	if version <= s.version {
		return nil
	}
	return []state{{kind, value, version, true}}
}

func flat(states []state, next func(state) []state) (all []state) {
	for _, s := range states {
		all = append(all, next(s)...)
	}
	return all
}

func change(s state, in input, out output) []state {
	holds, fails := split(s, in.condition)
	done := func(s state) []state {
		if in.action == "put" {
			return write(s, present, in.value, out.version)
		}
		return []state{{nothing, 0, s.version, false}}
	}
	there := func(s state) []state { return observe(s, out.version) }
	switch out.outcome {
	case "done":
		if in.action == "delete" {
			holds = flat(holds, there)
		}
		return flat(holds, done)
	case "refused":
		wanted, err := strconv.ParseUint(in.condition, 10, 64)
		if err == nil && wanted == out.version {
			return nil
		}
		if (in.condition == "present") != (out.version == 0) && err != nil {
			return nil
		}
		return flat(fails, there)
	case "nothing":
		return observe(s, 0)
	case "unknown":
		return append(flat(holds, done), s)
	}
	panic(out.outcome)
}

func add(s state, in input, out output) []state {
	sum, known := in.value, s.kind != anything
	if s.kind == present {
		sum += s.value
	}
	if out.outcome == "unknown" {
		if known {
			return append(write(s, present, sum, 0), s)
		}
		return append(write(s, anything, 0, 0), s)
	}
	if known && sum != out.value {
		return nil
	}
	return write(s, present, out.value, out.version)
}

func step(s, in, out interface{}) []interface{} {
	var next []state
	before, asked, told := s.(state), in.(input), out.(output)
	switch asked.action {
	case "get":
		next = []state{before}
		if told.outcome == "nothing" {
			next = observe(before, 0)
		} else if told.outcome == "found" {
			next = nil
			if before.kind == anything || before.value == told.value {
				for _, s := range observe(before, told.version) {
					s.kind, s.value = present, told.value
					next = append(next, s)
				}
			}
		}
	case "put", "delete":
		next = change(before, asked, told)
	case "add":
		next = add(before, asked, told)
	case "lose":
		next = []state{{anything, 0, 0, false}, before}
	}
	all := make([]interface{}, len(next))
	for i, s := range next {
		all[i] = s
	}
	return all
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func read(line string) porcupine.Operation {
	words := strings.Fields(line)
	in := input{key: uint64(number(words[1])), action: words[4]}
	rest := words[5:]
	switch in.action {
	case "put":
		in.value, in.condition, rest = number(rest[0]), rest[1], rest[2:]
	case "delete":
		in.condition, rest = rest[0], rest[1:]
	case "add":
		in.value, rest = number(rest[0]), rest[1:]
	}
	out := output{outcome: rest[0]}
	if len(rest) > 1 {
		out.version = uint64(number(rest[1]))
	}
	if len(rest) > 2 {
		out.value = number(rest[2])
	}
	end := int64(math.MaxInt64)
	if words[3] != "-" {
		end = number(words[3])
	}
	return porcupine.Operation{ClientId: int(number(words[0])), Input: in, Call: number(words[2]), Output: out, Return: end}
}

func partition(history []porcupine.Operation) [][]porcupine.Operation {
	keys := make(map[uint64][]porcupine.Operation)
	for _, operation := range history {
		key := operation.Input.(input).key
		keys[key] = append(keys[key], operation)
	}
	var all [][]porcupine.Operation
	for _, operations := range keys {
		all = append(all, operations)
	}
	return all
}

func main() {
	nondeterministic := porcupine.NondeterministicModel{
		Partition: partition,
		Init:      func() []interface{} { return []interface{}{state{}} },
		Step:      step,
	}
	model := nondeterministic.ToModel()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	var history []porcupine.Operation
	for lines.Scan() {
		if lines.Text() != "" {
			history = append(history, read(lines.Text()))
			continue
		}
		switch porcupine.CheckOperationsTimeout(model, history, 10*time.Minute) {
		case porcupine.Ok:
			fmt.Println("linearizable")
		case porcupine.Illegal:
			fmt.Println("violated")
		default:
			fmt.Fprintln(os.Stderr, "no verdict in ten minutes")
			os.Exit(1)
		}
		history = history[:0]
	}
}

{{- define "muster.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "muster.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "muster.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "muster.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "muster.scheduler" -}}
{{ include "muster.fullname" . }}-scheduler
{{- end -}}

{{- define "muster.worker" -}}
{{ include "muster.fullname" . }}-worker
{{- end -}}

{{/* Labels by which pods are selected: never changed. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: {{ include "muster.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "muster.labels" -}}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{- define "muster.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* Where the replica of a pod is reached: its name never changes, whatever becomes of its address. */}}
{{- define "muster.address" -}}
{{- $scheduler := include "muster.scheduler" .root -}}
{{ $scheduler }}-{{ .ordinal }}.{{ $scheduler }}-peers.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}:7400
{{- end -}}

{{/* The addresses of all replicas, as a JSON list. */}}
{{- define "muster.addresses" -}}
{{- $addresses := list -}}
{{- range $ordinal, $replica := .Values.scheduler.replicas -}}
{{- $addresses = append $addresses (include "muster.address" (dict "root" $ "ordinal" $ordinal)) -}}
{{- end -}}
{{- toJson $addresses -}}
{{- end -}}

{{/* The settings of one replica. Those that found the group name each other; one that joins names itself. */}}
{{- define "muster.scheduler.settings" -}}
{{- $root := .root -}}
{{- $own := include "muster.address" (dict "root" $root "ordinal" .ordinal) -}}
{{- $peers := dict -}}
{{- $others := list -}}
{{- range $ordinal, $replica := $root.Values.scheduler.replicas -}}
{{- $address := include "muster.address" (dict "root" $root "ordinal" $ordinal) -}}
{{- if not $replica.join -}}
{{- $_ := set $peers (printf "%d" (int $replica.id)) $address -}}
{{- end -}}
{{- if ne $address $own -}}
{{- $others = append $others $address -}}
{{- end -}}
{{- end -}}
{{- $settings := deepCopy $root.Values.scheduler.settings -}}
{{- $_ := set $settings "replica_id" (int .replica.id) -}}
{{- $_ := set $settings "cluster_id" (default $root.Release.Name $root.Values.scheduler.clusterId) -}}
{{- $_ := set $settings "listen" "0.0.0.0:7400" -}}
{{- $_ := set $settings "metrics_listen" "0.0.0.0:7401" -}}
{{- $_ := set $settings "data_dir" "/var/lib/muster-scheduler" -}}
{{- if .replica.join -}}
{{- $_ := set $settings "join" $others -}}
{{- $_ := set $settings "advertise" $own -}}
{{- $_ := set $settings "peers" (dict (printf "%d" (int .replica.id)) $own) -}}
{{- else -}}
{{- $_ := set $settings "peers" $peers -}}
{{- end -}}
{{- toPrettyJson $settings -}}
{{- end -}}

{{- define "muster.worker.settings" -}}
{{- $settings := deepCopy .Values.worker.settings -}}
{{- $_ := set $settings "schedulers" (include "muster.addresses" . | fromJsonArray) -}}
{{- $_ := set $settings "metrics_listen" "0.0.0.0:7402" -}}
{{- $_ := set $settings "data_dir" .Values.worker.dataPath -}}
{{- $_ := set $settings "run_dir" .Values.worker.runPath -}}
{{- with .Values.worker.checkpointPath -}}
{{- $_ := set $settings "checkpoint_root" . -}}
{{- end -}}
{{- toPrettyJson $settings -}}
{{- end -}}
